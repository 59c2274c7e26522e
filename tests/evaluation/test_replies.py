"""A table of replies and the option that each chooses, and properties of the parser."""

import itertools
import re

import pytest

from aviot.evaluation.choices import choose

ANIMALS = ("a dog", "the black cat", "two birds", "a horse")
UP_DOWN = ("up", "down")
YES_NO = ("Yes", "No")
TRUE_FALSE = ("True", "False")
COUNTS = ("1", "2", "3", "4")

# Replies to a question with the options A. a dog, B. the black cat, C. two birds, D. a horse
READ = {
    "A": """
        My initial guess was C, but I believe it is A.
        I initially thought (B). On second thoughts, (A).
        At first glance, B is correct, but actually it's A.
        At first glance B seems right, but in fact the answer is A
        A: yes\\nB: no\\nC: no
        Correct: A\\n\\nIncorrect: B, C, D
        Correct - A; incorrect - B, C, D
        Right: A. Wrong: B.
        Sorry, A
        Option 1.
        The first one
        A) a dog: seen\\nB) the black cat: not seen\\n\\nFinal answer: A
        The first choice, a dog.
        Not B, C or D
        Not B. Not C. Not D.
        The video shows it. This corresponds to option A.
        So option A is what happens.
        A is more likely than B, C or D.
        A is likelier than C.
        A has more support than C.
        Between A and C, A is more likely.
        Between A and C: A.
        Between A and C, I'd go with A.
        Between options A and C, option A fits better.
        It's between A and C, but A is more plausible.
        Of A and C, A is the better choice.
        A is more likely than C.
        A is a better match than C.
        A seems more plausible than B or C.
        I prefer A over C.
        I'd choose A over B.
        A rather than C.
        A, as opposed to C.
        Rather than C, A.
        Instead of B, the answer is A.
        C is less likely than A.
        Either A or C, but A is more likely.
        A or C, probably A.
        It could be A or B, but I'd say A.
        The first option
        The first option.
        the first option is correct
        I choose the first option.
        My answer is the first one.
        The 1st option
        Option 1
        Option one
        option number 1
        Choice 1.
        (a)
        Option A best describes the video.
        A matches the video.
        A fits best.
        A makes the most sense.
        A is the only one that fits, so A.
        The answer is none other than A.
        Sorry, A.
        I'm sorry, it's A.
        Apologies, A.
        Sorry, I meant A.
        Based on the video, A.
        After watching the clip carefully, A.
        A, although C is close.
        A, even though it could look like C.
        Incorrect: B, C, D\\nCorrect: A
        Correct: A
        Yes: A\\nNo: B, C, D
        Remaining: A
        Correct option: A
        ✓ A\\n✗ B\\n✗ C\\n✗ D
        [x] A\\n[ ] B\\n[ ] C
        - [ ] B\\n- [x] A
        A ✓, B ✗, C ✗, D ✗
        A: ✅\\nB: ❌\\nC: ❌\\nD: ❌
        Is it A? Yes. Is it B? No.
        A? Yes.
        A: correct\\nB: incorrect\\nC: incorrect\\nD: incorrect
        If I had to guess, A.
        If forced to choose, I would pick A.
        No doubt, it's A.
        There is no doubt that it is A.
        I have no doubt the answer is A.
        Without a doubt A.
        I'm not sure, but A.
        I cannot see it well, but my guess is A.
        Not sure, probably A.
        La réponse est A.
        正确答案应该是A。
        第一个选项
        起初我以为是C，但其实是A。
        A dog.
        I thought it was a horse, but it is a dog.
        At first it looked like a horse, but it's a dog.
        It is not a horse but a dog.
        It's a dog, not a horse.
        The video does not show a horse. It is a dog.
        Is it a horse? No. It is a dog.
        Sorry, a dog.
        a horse: no\\na dog: yes
    """,
    "B": """
        A: 0%\\nB: 100%
        At first I thought it was C. But it is B.
        I guess A, but on reflection B
        I'd guess A... on reflection, B.
        Between options B and D, B seems more likely.
        By elimination: B
        By elimination - B
        by process of elimination, B is the answer
        a: no\\nb: yes\\nc: no
        (a) no\\n(b) yes\\n(c) no
        A. No\\nB. Yes\\nC. No
        A - No, it is not visible.\\nB - Yes, it is visible.\\nC - No.
        A: No, there is none.\\nB: Yes, it is there.\\nC: No.
        sorry, it's b.
        The second option.
        Second option
        The answer is option 2.
        I choose option number two
        The 2nd option is correct
        A) a dog - not seen\\nB) the black cat - seen
        - A: not seen\\n- B: seen\\n- Final answer: B
        A. a dog\\nB. the black cat\\nC. two birds\\nD. a horse\\nThe answer is B.
        A is what I first believed, yet it is B.
        Hmm, A? No, B.
        You might think it's A, but it's B.
        At first, I believed A was right. On reflection, the answer is B.
        Scratch that, it's B.
        The answer is A. Wait, I mean B.
        A. Correction: B.
        Answer: A\\nActually, answer: B
        This leaves us with option B.
        After eliminating A and C, B is the best.
        Elimination leaves B.
        Given the options, B is the most plausible.
        B is preferable to A.
        B beats A.
        More likely B than A.
        Probably B, less likely A.
        B > A in likelihood, so B
        I'd lean B.
        Leaning towards B.
        Go with B.
        Certainly B.
        B it is.
        It's got to be B.
        The choice is B.
        Choice: B
        Conclusion: B
        In conclusion, B.
        To conclude, the answer must be B.
        Overall, B is correct.
        Therefore, option B.
        => B
        → B
        Ans. B
        I'd go with the second one.
        Option 2 (the black cat)
        Option 2: the black cat
        A: This is incorrect.\\nB: This is correct.\\nC: This is incorrect.
        A: no dog is visible\\nB: yes, the cat is visible\\nC: no birds
        A: unlikely\\nB: likely\\nC: unlikely\\nD: unlikely
        A: impossible, B: possible, C: impossible, D: impossible
        A (incorrect)\\nB (correct)
        Plausible: A, B. Correct: B.
        The answer is B!!!
        *B*
        __B__
        ~B~
        `(B)`
        「Ｂ」です
        答えはBです
        정답은 B입니다
        Ответ: B
        Die richtige Antwort ist B.
        La respuesta correcta es la B.
        不选A，选B
        应该是B，不是A
        A错，B对
        A: 错误\\nB: 正确\\nC: 错误
        This is best described by B.
        Looks like B.
        Seems like B
        **Option B**: the animal is on the sofa.
        Option B: the animal sits.
        Answer B: it sits
        B: it sits on the sofa
        2) the black cat
        {"answer": "B", "explanation": "A is wrong"}
        I am confident that it's B.
        I'm confident B is right.
        The answer should therefore be B.
        Given that it purrs, B.
        Reasoning: A shows a dog, which is absent. B shows the cat.\\n\\nAnswer: (B)
        A: The dog is not visible.\\nB: The cat is clearly visible.\\nC: There are no birds.\\nSo the answer is B.
        A seems unlikely. B seems likely.
        A is not correct; neither is C. B is.
        I think that the answer is B, however I could be wrong.
        B. However, A is also possible.
        The answer is B, but A is close.
        Probably B, though A is possible.
        I would say B; A is a distractor.
        It's a toss-up between A and B, but I'd pick B.
        A) a dog: not seen\\nB) the black cat: seen\\n\\nFinal answer: B
        A) …: not seen\\nB) …: seen\\n\\nFinal answer: B
        A) a dog: not seen\\nB) the black cat: seen
        A: no\\nB: yes\\nC: no
        A: no\\nB: yes\\nC: no\\nD: no
        A: No.\\nB: Yes.\\nC: No.\\nD: No.
        A - no\\nB - yes\\nC - no
        A: no, B: yes, C: no, D: no
        A = no; B = yes; C = no
        A (no), B (yes), C (no)
        **A:** no\\n**B:** yes\\n**C:** no
        - A: no\\n- B: yes\\n- C: no
        | A | a dog | no |\\n| B | the black cat | yes |\\n| C | two birds | no |
        A. Incorrect.\\nB. Correct.\\nC. Incorrect.\\nD. Incorrect.
        A: wrong\\nB: right
        A: false\\nB: true\\nC: false\\nD: false
        A: not shown\\nB: shown\\nC: not shown
        A. a dog - incorrect\\nB. the black cat - correct\\nC. two birds - incorrect
        A) a dog (not seen)\\nB) the black cat (seen)\\nC) two birds (not seen)
        Option A: no\\nOption B: yes\\nOption C: no
        Ａ：no\\nＢ：yes\\nＣ：no
        A ✗ B ✓ C ✗ D ✗
        A ❌\\nB ✅\\nC ❌
        A? No. B? Yes.
        Is it A? No. Is it B? Yes.
        Incorrect: A, C, D\\nCorrect: B
        Incorrect: A, C, D. Correct: B.
        Wrong: A and C\\nRight: B
        Incorrect options: A, C and D\\nCorrect option: B
        Eliminated: A, C, D. Remaining: B
        A, C and D are wrong.
        A is wrong. C is wrong. D is wrong.
        Not A, not C, not D.
        Neither A, C nor D is correct.
        Options A, C and D can be ruled out.
        Sorry, B.
        I was wrong, it's B.
        The second option
        The second choice is right.
        Not the first option but the second option.
        The first option is wrong; the second option is correct.
        Option 2
        Option 2.
        Option two is correct.
        I pick option 2
        **Option 2**
        A. a dog\\nB. the black cat\\nC. two birds\\nD. a horse\\nB
        A. a dog\\nB. the black cat\\nC. two birds\\nD. a horse\\n\\nB. the black cat
        Initially A, but B.
        Originally I chose A; on reflection, B.
        The answer is A. Actually, it's B.
        I'd say A. On second thought, B.
        A is tempting, but B is correct.
        A looks right, but B is the answer.
        A might be right; however, B is better.
        Some might say A, but it is B.
        One might think A, but the answer is B.
        My previous answer was A. The correct one is B.
        I considered A, but B is correct.
        While A is possible, B is more likely.
        Although the answer looks like A, it is B.
        It's not that A is bad, but B is the answer.
        第二个选项
        A不对，C不对，D不对
        B is the answer; A is wrong.
        Answer: b
        final answer: (b)
        My final answer is: B.
        I first thought of A. Final answer: B
        The answer is A... Final answer: B
        A is close. B is closer.
        C is less accurate than B.
        The answer isn't A, C or D. It's B.
        It must be B since A, C and D are not shown.
        It can't be A; it has to be B.
        A is out, C is out, so B.
        It is the black cat, rather than a dog.
        Not a dog. The black cat.
    """,
    "C": """
        Sorry! C.
        Sorry - C.
        Sorry, the answer is C.
        My apologies, C.
        My mistake: C.
        I apologize. C.
        The third choice.
        Option Three
        The answer is the third option
        a dog\\nthe black cat\\ntwo birds\\na horse\\nAnswer: C
        a dog, the black cat, two birds, a horse. Answer: C
        A. a dog\\nB. the black cat\\nC. two birds\\nD. a horse\\n\\n(C)
        A. dog B. cat C. birds D. horse. Answer: C
        Options: A, B, C, D. Answer: C
        I initially leaned towards A, but after reviewing the clip, the answer is C.
        Initially I leaned towards A; however, C is correct.
        My gut says A, but the evidence points to C.
        I believed the answer was A, however it is C.
        It looks like B at first, but it is C.
        I said A earlier, but I now think C.
        I wanted to say A, but C is better.
        A? Not really. C.
        The answer is not A, not B, and not D.
        Excluding A, B and D, we get C.
        A and B are ruled out, and so is D. C remains.
        C is the only option left.
        Only C remains.
        Only C fits.
        Out of all the options, C is closest.
        Among A, B, C and D, C is best.
        I'll go for C
        My vote is for C.
        C for sure.
        C, definitely.
        Definitely not A. It's C.
        The correct letter is C.
        The right one is C
        The one that fits is C.
        Ans - C
        The answer to this is C.
        The third option is the right one.
        The third one.
        option #3
        Option no. 3
        A - wrong; B - wrong; C - right; D - wrong
        A is incorrect, B is incorrect, C is correct, D is incorrect.
        A) No\\nB) No\\nC) Yes\\nD) No
        A. no\\nB. no\\nC. yes\\nD. no
        A – not shown\\nB – not shown\\nC – shown
        Wrong answers: A, B, D. Right answer: C.
        False: A, B\\nTrue: C
        Not correct: A, B, D\\nCorrect: C
        A resposta é C.
        La risposta è C.
        我一开始选A，后来改选C。
        That matches option C.
        It was A in the first half, but the answer is C.
        My answer: C\\nMy reasoning: A is wrong, B is wrong.
        First, A is wrong. Second, B is wrong. Third, D is wrong. So C.
        Compared to A, C is more accurate.
        C, compared with A, is better.
        Between A, B and C, C is the closest.
        Between the two, C.
        If it's between A and C, I'd pick C.
        Either B or C; I'd go with C.
        B or C? C.
        B or C... probably C
        Option C is better than option A.
        I prefer option C to option A.
        C rather than A or B
        C and not A
        C, and not A
        Yes, C.
        Yes. C.
        No. C.
        Okay, C
        the answer is c
        c is correct
        option c is right
        C)two birds
        The answer is **C**: two birds
        Final Answer: **C. two birds**
        **Final answer:** C
        FINAL ANSWER: C
        #### C
        The answer is $C$.
        \\[\\boxed{C}\\]
        <answer> C </answer>
        A: ✗\\nB: ✗\\nC: ✓\\nD: ✗
        ❌ A. a dog\\n❌ B. the black cat\\n✅ C. two birds\\n❌ D. a horse
        (A) No. (B) No. (C) Yes. (D) No.
        A→no, B→no, C→yes
        A | no\\nB | no\\nC | yes
        1. A - no\\n2. B - no\\n3. C - yes
        A: not seen; B: not seen; C: seen; D: not seen. Final answer: C
        Seen: C\\nNot seen: A, B, D
        Supported: C. Unsupported: A, B, D.
        Possible answers: A, B, C, D. Correct answer: C.
        Only option C is correct.
        None but C.
        Nothing but C fits.
        No option except C is right.
        All except C are wrong.
        Everything but C is wrong.
        By elimination: C
        By elimination, C.
        By elimination, the answer is C.
        By process of elimination: C
        Through elimination, C
        A, B and D don't fit, which leaves C.
        A. a dog\\nB. the black cat\\nC. two birds\\nD. a horse\\nAnswer: C
        A. a dog\\nB. the black cat\\nC. two birds\\nD. a horse\\n\\nAnswer: C
        A. a dog B. the black cat C. two birds D. a horse Answer: C
        (A) a dog\\n(B) the black cat\\n(C) two birds\\n(D) a horse\\nAnswer: (C)
        A) a dog\\nB) the black cat\\nC) two birds\\nD) a horse\\n\\nThe answer is C) two birds.
        Options:\\nA. a dog\\nB. the black cat\\nC. two birds\\nD. a horse\\nThe correct option is C.
        The options are A. a dog, B. the black cat, C. two birds, D. a horse. I choose C.
        Question: which?\\nA. a dog\\nB. the black cat\\nC. two birds\\nD. a horse\\nAnswer: C. two birds
        Choose the best answer:\\nA. a dog\\nB. the black cat\\nC. two birds\\nD. a horse\\n**Answer: C**
        A. a dog\\r\\nB. the black cat\\r\\nC. two birds\\r\\nD. a horse\\r\\nAnswer: C
        a. a dog\\nb. the black cat\\nc. two birds\\nd. a horse\\nAnswer: c
        At first glance A is correct, but actually it's C.
        At first glance A is correct, but it's actually C.
        At first glance, A seems correct. However, the answer is C.
        At first sight A. On closer inspection, C.
        On the surface A fits, but C is right.
        I initially thought A. Actually, C.
        A seemed right at first, but C is correct.
        A was my first guess, but C is right.
        My first impression was A, but looking closer it's C.
        I would have said A, but it's C.
        I almost chose A, but the answer is C.
        I was going to say A, but C.
        Option 3
        Option 3.
        option three
        The third option
        the 3rd option is the correct one
        Not A. Not B. Option 3.
        A: no\\nB: no\\nC: yes\\nD: no
        A, B and D are incorrect; C is correct.
        C over A.
        I am torn between A and C, but I choose C.
        A and C are both plausible, but C fits better.
        Both A and C are possible, but C is more likely.
        排除A、B、D，选C
        用排除法，选C。
        一开始我觉得是A，但是选C。
        The answer is C, not A, B or D.
        None of A, B or D fits, so C.
        C. Not A, B or D.
        It's C (two birds).
        two birds (C)
        Answer:\\n\\nC
        Answer → C
        So, by elimination, it is C!
        It is two birds.
        There are 2 birds.
    """,
    "D": """
        It first appears to be A; but it is in fact D.
        Though I guessed A, D is right.
        Between B and D, D is more likely.
        Between (B) and (D), (D) is more likely.
        A: no\\nB: no\\nC: no\\nD: yes
        option 4
        the last one
        (A) a dog (B) the black cat (C) two birds (D) a horse\\nAnswer: D
        I was leaning toward B, but D is right.
        First I thought B. Then I realized it's D.
        It seems like A, but it's really D.
        A appears correct, yet the correct one is D.
        Many would choose A, but the right answer is D.
        Let me reconsider. The answer is D.
        Only D matches the video.
        That leaves D.
        We are left with D.
        A is eliminated because..., B is eliminated because..., C is eliminated because...
        Of all the options, D describes it best.
        Let's go with D
        Has to be D.
        Must be D.
        Selected option: D
        Selection: D
        Pick: D
        Verdict: D
        It's the fourth option.
        The very last option.
        Ruled out: A, B, C
        No dog, a horse.
        It isn't a dog; it's a horse.
        A dog? No, a horse.
        Looks like a dog but it's a horse.
        It may look like a dog, but it is a horse.
        The answer is a horse, not a dog.
        I would guess a horse.
        My first instinct is A but the correct answer is D
        My initial inclination was to pick A; I will go with D instead.
        I'd initially say A. But on closer look it's D.
        Initially, I thought the answer was (A). However, upon closer inspection, the answer is (D).
        At first blush A, but D.
        Option A looked promising at first, but D is the one.
        A was tempting, D is correct.
        I was tempted by A, but I choose D.
        Not option A as I first thought, but option D.
        I changed my mind: D.
        I take that back, D.
        No, sorry, D.
        Oops, I meant D.
        Oh wait, it's D.
        A... Hmm, actually D.
        Thinking again, D is better.
        It's D, I was wrong about A.
        I retract A. D.
        Between B and D: D
        Both B and D fit, but D fits better.
        My initial guess was A, but I believe it is D.
        My initial guess was A but I believe it's D.
        My initial guess was A. However, I now believe it is D.
        My first thought was A, but the answer is D.
        My initial answer was A; on second thought, D.
        I initially chose A, but D is correct.
        I thought it was A, but it's D.
        I thought A at first, but D is right.
        I guessed A, but it is D.
        I assumed it was A. Actually it's D.
        Originally I believed it was B, but after closer inspection it is D.
        At first I thought B, then C, but it is D.
        The last option
        The last option.
        the fourth option
        I choose the last one.
        Option 4
        Not A, B, or C.
        A, B and C are all wrong.
        Neither A nor B nor C.
        A is ruled out. B is ruled out. C is ruled out.
        Correct: D\\nIncorrect: A, B, C
        ❌ A\\n❌ B\\n❌ C\\n✅ D
        It is a horse rather than a dog.
        At first glance it looks like a dog, but it is a horse.
        a horse, I think.
        ANSWER: D
        The answer is (d).
        The answer is Ｄ。
        I believe it is D because of the mane.
        It is D in the end.
    """,
}

NOT_READ = """
    The answer is A. The answer is B.
    A. B.
    A is correct. C is correct.
    Final answer: A. Final answer: C.
    A or C.
    Either A or C is right.
    Between A and C.
    It's between A and C.
    A and C are equally likely.
    A is as likely as C.
    I can't choose between A and C.
    It could be A, it could be C.
    It might be C, but it could also be D.
    My initial guess was A.
    At first glance A is correct.
    I thought it was A.
    Some might say A.
    I considered A.
    Is it A?
    Could it be B?
    Is A correct?
    Is A correct? No.
    A? No.
    If the dog barks, the answer is A.
    The answer would be A if it barked.
    If it is night then A, otherwise B.
    It depends: A or B.
    I am not sure whether A is correct.
    I'm not confident that B is correct.
    I am not convinced that it is C.
    I doubt it is A.
    I doubt that A is right.
    It is not the case that A is correct.
    There is no way it's A.
    It is unclear if the answer is B.
    I don't think it's A.
    I do not believe that the answer is B.
    I wouldn't choose B.
    A is anything but correct.
    It's anything but A.
    Anything but B.
    All but A.
    A is far from correct.
    A is less likely.
    A is the least likely.
    A is wrong, B is wrong.
    Not A or B.
    Incorrect: A
    Wrong: B
    A: no
    A: no\\nB: no
    A: yes\\nB: yes\\nC: no
    A: yes, B: yes
    Correct: A, C
    ✗ A
    A, B, C and D are all wrong.
    None of A, B, C and D.
    A. a dog\\nB. the black cat\\nC. two birds\\nD. a horse\\nAnswer:
    A. a dog\\nB. the black cat\\nC. two birds\\nD. a horse\\nAnswer: E
    A. a dog\\nB. the black cat\\nC. two birds\\nD
    A. a dog\\nB. the black cat
    Answer choices: A, B, C, D
    Option A shows a dog. Option B shows the black cat.
    Option 5
    Option 0
    Options 1 and 3
    The first or the second option
    the first and third options
    Not the first option.
    The first option is wrong.
    The first frame shows nothing.
    In the first scene, he sits.
    The second man walks away.
    He writes B on the board.
    The sign says C.
    The man in lane B wins.
    He got a B in maths.
    Plan B is shown.
    Vitamin C is good.
    The letter B appears on the wall.
    Option B mentions something.
    All of the above.
    Both.
    Neither.
    a dog and then a horse
    first a dog, then a horse
    It is not a dog.
    There is no dog in the video.
    The man is not holding a dog.
    The video doesn't show a dog.
    I never saw a dog.
    Is it a dog?
    If it is a dog, it barks.
    I thought it was a dog.
    I am not sure whether it is a dog.
    It could be a dog or a horse.
    A, a horse
    B. a horse
    The answer is A: the black cat
    A (the black cat)
    3
    Number 3 on the list of things
    3 options
    My first choice
    I'd rather not say.
    Sorry, I cannot help.
    I'm sorry.
    Sorry.
    I don't know. Perhaps none.
    The answer is unknown.
    Answer:
    The answer is
    1. a dog 2. a horse
    起初我以为是A。
    不是A，也不是B
    可能是A，也可能是B
    A和C都有可能
    The option in the third place? no
    Number 2 is wrong
    Option 2: a dog
    A=0, B=1, C=0, D=0
    I can't tell if it's A or B.
    It is not clear that A is correct.
    Whether it is A or C is unclear.
    Nobody would choose A.
    A would be wrong.
    A could never be right.
    Who said A?
    Why not A?
    What about B?
    Compare A with B.
    A differs from B.
    A and B differ.
    Look at A.
    See option B for details.
    Consider option A.
    Let's consider A first.
    Option A says it's a dog.
    Option B is about the cat.
    If A is correct then B is wrong.
    A implies B.
    The answer is either A or not A.
    The answer is A and B.
    A & C are right
    The answer: A/C
    I pick A... no, B... no, C.
    A. No, B.
    Both A and B could be right, hard to say.
    The correct answer is not listed.
    None.
    No option is correct.
    All options are correct.
    I refuse to choose A.
    I refuse to answer.
    Never A.
    It's hardly A.
    By no means A.
    A is not impossible.
    A isn't entirely wrong.
    Unlikely to be A.
    Neither the first nor the second option.
    The first two options are wrong.
    The first option and the last option are correct.
    He takes the first option he gets.
    There are 4 options.
    Type A blood
    Grade B
    Section C of the exam
    Bus B leaves
    He hits the A key on the keyboard
    She sings a C note
    C is for cat
    A man named B walks
    Mr. B enters
    A dog or a horse?
    There's a dog, and a horse.
    There is a man, a dog, and two birds.
    The dog chases two birds.
    The horse is bigger than a dog.
    Without a dog.
    Not a dog, not a horse, not two birds.
    A horse, I'd say; maybe a dog.
    i think c
    B may be possible.
    The answer is A. A is wrong.
    A is right. No, A is wrong.
    I choose A and I choose B
    Final answer: A or B
    My final answer is not A.
    Answer: not A
    Answer: none
    Answer: A, B, C, D
    Answer: unknown
    Correct: none\\nIncorrect: A, B, C, D
    A: maybe\\nB: maybe
    A: yes\\nA: no
    A ✓ B ✓
    A: ?\\nB: ?
    I thought it was A, then B, then C.
    At first A, later B.
    Initially A.
    My first guess was A and my second guess was B.
    Had it barked, A would be correct.
    A would have been correct had it barked.
    Assuming it's a trick, B.
    Suppose the answer is B.
    Let us assume A is correct.
    Imagine it is A.
    It would be wrong to say A.
    It is a mistake to choose A.
    Don't choose A.
    Do not pick B.
    Choosing A is wrong.
    The answer A is wrong.
    Answer A is incorrect.
    Whoever says A is wrong.
    Saying A would be incorrect.
    People who choose A are mistaken.
    A is hardly correct.
    A can hardly be right.
    A is rarely correct.
    A is partially correct.
    A is half right.
    A is almost right.
    A is nearly correct.
    Is the answer A or is it B?
    Would you say A?
    Do you mean B?
    Which is better, A or B?
    Can you clarify option B?
    The question has options A to D.
    Options A-D are given.
    A through D
    The options: A, B, C.
    Choose from A, B, C, D.
    The first letter is B.
    He is in group B.
    She plays in B minor.
    Plan A fails.
    The man says "A".
    Exhibit A is shown.
    Room B is empty.
    B is a letter.
    The two options are equally good.
    Third option pending.
    He has three options.
    The second half shows it.
    At first he runs.
    The last scene shows it.
    He chooses the first option on the menu.
    I can see neither a dog nor a horse.
    a dog, a horse
    a dog; a horse
    dog/horse
    The dog is not there, nor the horse.
    It's hard to say if it is a dog.
    My initial thought was option B, but the video clearly shows C.
    between b and d, d is more likely
    Process of elimination gives B.
    Elimination: B
    It's the third.
    Third
    Opt. 3
    Option III
    The first.
    Not sure.
    The answer isn't clear: A or B.
    I'd say it's not A.
    Probably not B.
    B? Probably not.
    B is probably not correct.
    It's definitely not C.
    I can rule out A.
    I can rule out A and B.
    A is my initial guess.
    My initial guess is A.
    A? B? C?
    A, then B.
    First A then B.
    A, followed by C.
    From A to B.
    A is before B.
    Yes.
    No.
    True.
    C or D, can't decide.
    No clear answer: A.
"""

OTHER = [
    # words of direction, and their opposites
    (UP_DOWN, "It moves up.", 0),
    (UP_DOWN, "It moves down.", 1),
    (UP_DOWN, "The ball is moving up.", 0),
    (UP_DOWN, "The ball goes straight down.", 1),
    (UP_DOWN, "It goes up the hill.", 0),
    (UP_DOWN, "It moves upward.", 0),
    (UP_DOWN, "It moves downwards.", 1),
    (UP_DOWN, "Up.", 0),
    (UP_DOWN, "Up, because it rises.", 0),
    (UP_DOWN, "The answer is up.", 0),
    (UP_DOWN, "I think it's down.", 1),
    (UP_DOWN, "The direction is up.", 0),
    (UP_DOWN, "It moves up, not down.", 0),
    (UP_DOWN, "It does not move up, it moves down.", 1),
    (UP_DOWN, "At first glance it moves up, but actually it moves down.", 1),
    (UP_DOWN, "I thought it moves up, but it moves down.", 1),
    (UP_DOWN, "It moves up and then down.", None),
    (UP_DOWN, "It moves up, then down.", None),
    (UP_DOWN, "It first moves up. Then it moves down.", None),
    (UP_DOWN, "At first it moves up, then it moves down.", None),
    (UP_DOWN, "It moves up and down.", None),
    (UP_DOWN, "It moves up or down.", None),
    (UP_DOWN, "It does not move up.", None),
    (UP_DOWN, "It doesn't move down.", None),
    (UP_DOWN, "Does it move up?", None),
    (UP_DOWN, "He picks up the cup.", None),
    (UP_DOWN, "He puts down the cup.", None),
    (UP_DOWN, "He gives up.", None),
    (UP_DOWN, "Up. Down.", None),
    (UP_DOWN, "Up. It moves down.", None),
    (("up", "down", "up and then down"), "It moves up and then down.", 2),
    (("up", "down", "left", "right"), "It moves to the right.", 3),
    (("up", "down", "left", "right"), "It moves to the left.", 2),
    (("up", "down", "left", "right"), "It turns left.", 2),
    (("up", "down", "left", "right"), "It turns right.", 3),
    (("up", "down", "left", "right"), "The right answer is left.", 2),
    (("up", "down", "left", "right"), "The right answer is right.", 3),
    (("left", "right"), "The right answer is A.", 0),
    (("left", "right"), "It is on the left.", 0),
    (("left", "right"), "It is on the right side.", 1),
    (("left", "right"), "He left the room.", None),
    (("left", "right"), "Right now he sits.", None),
    (("left", "right"), "He goes right away.", None),
    (("left", "right"), "It moves from left to right.", None),
    (("on", "off"), "The light is on.", 0),
    (("on", "off"), "The light is off.", 1),
    (("on", "off"), "The cup is on the table.", None),
    (("in", "out"), "The camera zooms in.", 0),
    (("in", "out"), "The camera zooms out.", 1),
    (("in", "out"), "It moves in a circle.", None),
    # yes and no, true and false
    (YES_NO, "Yes. No.", None),
    (YES_NO, "No. Yes.", None),
    (YES_NO, "Yes, no.", None),
    (YES_NO, "Yes! Yes!", 0),
    (YES_NO, "No. No.", 1),
    (YES_NO, "I think yes.", 0),
    (YES_NO, "I'd say no.", 1),
    (YES_NO, "So the answer is yes.", 0),
    (YES_NO, "Yes, no doubt.", 0),
    (YES_NO, "Yes, the answer is no.", None),
    (YES_NO, "Is there a dog? Yes.", 0),
    (YES_NO, "Is there a dog? No.", 1),
    (YES_NO, "Yes or no?", None),
    (YES_NO, "Yes or no? No.", 1),
    (YES_NO, "There is no dog.", None),
    (YES_NO, "No one is there.", None),
    (YES_NO, "The statement is true.", 0),
    (YES_NO, "The statement is false.", 1),
    (YES_NO, "That is correct.", 0),
    (YES_NO, "That is incorrect.", 1),
    (YES_NO, "At first I thought yes, but the answer is no.", 1),
    (YES_NO, "Not yes.", None),
    (TRUE_FALSE, "The statement is true.", 0),
    (TRUE_FALSE, "The statement is false.", 1),
    (TRUE_FALSE, "The statement is not true.", 1),
    (TRUE_FALSE, "The statement is not false.", 0),
    (TRUE_FALSE, "The statement isn't true.", 1),
    (TRUE_FALSE, "It is true that he runs.", 0),
    (TRUE_FALSE, "This is false.", 1),
    (TRUE_FALSE, "That's true.", 0),
    (TRUE_FALSE, "The claim is correct.", 0),
    (TRUE_FALSE, "True", 0),
    (TRUE_FALSE, "False, he walks.", 1),
    (TRUE_FALSE, "True or false? True.", 0),
    (TRUE_FALSE, "True. False.", None),
    (TRUE_FALSE, "The statement is true or false.", None),
    (TRUE_FALSE, "Is the statement true?", None),
    (TRUE_FALSE, "If the statement is true, he runs.", None),
    (TRUE_FALSE, "I am not sure the statement is true.", None),
    (TRUE_FALSE, "It is unclear whether the statement is false.", None),
    (TRUE_FALSE, "The statement is partly true.", None),
    (TRUE_FALSE, "The first statement is true. The second statement is false.", None),
    # counts
    (COUNTS, "one", 0),
    (COUNTS, "One.", 0),
    (COUNTS, "He claps one time.", 0),
    (COUNTS, "He claps two times.", 1),
    (COUNTS, "He claps once.", 0),
    (COUNTS, "He claps twice.", 1),
    (COUNTS, "There is one dog.", 0),
    (COUNTS, "There are two dogs.", 1),
    (COUNTS, "There is only one.", 0),
    (COUNTS, "There are only two.", 1),
    (COUNTS, "One man claps.", 0),
    (COUNTS, "Two men clap.", 1),
    (COUNTS, "The one on the left claps.", None),
    (COUNTS, "The two on the left clap.", None),
    (COUNTS, "No one claps.", None),
    (COUNTS, "This one claps.", None),
    (COUNTS, "Once he claps, he leaves.", None),
    (COUNTS, "One man claps three times.", None),
    (COUNTS, "Option 3", 2),
    (COUNTS, "It happens 3 times", 2),
    (("2", "3", "1"), "Option 2", None),
    (("once", "twice", "three times"), "He claps one time.", 0),
    (("once", "twice", "three times"), "He claps two times.", 1),
    (("once", "twice", "three times"), "He claps 3 times.", 2),
    (("once", "twice", "three times"), "He claps twice.", 1),
    (("one time", "two times"), "It happens one time.", 0),
    (("one time", "two times"), "It happens twice.", 1),
    (("one cup", "two cups"), "There is 1 cup.", 0),
    (("one cup", "two cups"), "There are 2 cups.", 1),
    # options that speak of options
    (("Both A and B", "Only C", "the first option", "none"), "Both A and B", 0),
    (("He opens the door", "He does not open the door"), "He does not open the door.", 1),
    (("He opens the door", "He does not open the door"), "He opens the door.", 0),
    (("on", "under"), "It is on the table.", 0),
    (("on", "under"), "It is under the table.", 1),
    (("on", "under"), "He puts it on the table.", 0),
    (("on", "under", "behind"), "The cup is not on the table.", None),
    (("in", "behind"), "It is in the box.", 0),
    (("in", "behind"), "He is in the video.", None),
    # further ones
    (("left", "right"), "To the left.", 0),
    (("left", "right"), "To the right.", 1),
    (("left", "right"), "It's moving leftward.", 0),
    (("left", "right"), "Leftwards.", 0),
    (("left", "right"), "on the right-hand side", 1),
    (("left", "right"), "on the left hand side", 0),
    (("left", "right"), "There is one left.", None),
    (("left", "right"), "He is right.", None),
    (("left", "right"), "That's right, it moves left.", 0),
    (("left", "right"), "That's right.", None),
    (("up", "down"), "He stands up.", None),
    (("up", "down"), "He sits down.", None),
    (("up", "down"), "It goes upwards, then downwards.", None),
    (("up", "down"), "It moves in an upward direction.", 0),
    (("up", "down"), "Upward", 0),
    (("up", "down"), "The elevator is going down", 1),
    (("up", "down"), "The elevator is not going down", None),
    (("up", "down"), "The arrow points up", 0),
    (("up", "down"), "What's up?", None),
    (("up", "down"), "It moves neither up nor down.", None),
    (("up", "down", "stays still"), "It stays still, it doesn't move up or down.", 2),
    (("moves up", "moves down"), "It moves up.", 0),
    (("Moving up", "Moving down"), "It is moving down", 1),
    (("moves up", "moves down"), "It moves up and then down.", None),
    (("Up and then down", "Down and then up"), "It moves up and then down.", 0),
    (("yes", "no"), "Yes, he does.", 0),
    (("yes", "no"), "No he doesn't", 1),
    (("yes", "no"), "yes yes", 0),
    (("yes", "no"), "Yes...no.", None),
    (("yes", "no"), "Yes? No.", 1),
    (("yes", "no"), "Not exactly, no.", 1),
    (("yes", "no"), "The answer is not yes.", None),
    (("yes", "no"), "no, the answer is yes", None),
    (("yes", "no"), "Yes - and no.", None),
    (("yes", "no"), "Yes, it is true.", 0),
    (("yes", "no"), "No, that is false.", 1),
    (("yes", "no"), "It's true.", 0),
    (("yes", "no"), "Correct.", 0),
    (("yes", "no"), "Incorrect.", 1),
    (("yes", "no"), "True", 0),
    (("yes", "no"), "I would answer yes", 0),
    (("yes", "no"), "I would not answer yes", None),
    (("yes", "no"), "A", 0),
    (("yes", "no"), "A. yes", 0),
    (("yes", "no"), "(B)", 1),
    (("True", "False"), "The statement above is true.", 0),
    (("True", "False"), "The given statement is false.", 1),
    (("True", "False"), "The statement is definitely true.", 0),
    (("True", "False"), "Statement: true", 0),
    (("True", "False"), "This statement is correct", 0),
    (("True", "False"), "It's not true.", 1),
    (("True", "False"), "I believe the statement is true.", 0),
    (("True", "False"), "I don't believe the statement is true.", None),
    (("True", "False"), "At first I thought the statement is true, but it is false.", 1),
    (("True", "False"), "The statement seems true but is false.", 1),
    (("True", "False"), "True and false", None),
    (("True", "False"), "That the statement is true is wrong.", None),
    (("True", "False"), "The statement can't be true.", None),
    (("True", "False"), "The statement must be true.", 0),
    (("Correct", "Incorrect"), "The statement is correct.", 0),
    (("Correct", "Incorrect"), "The statement is incorrect.", 1),
    (("Correct", "Incorrect"), "The correct answer is incorrect.", 1),
    (("Correct", "Incorrect"), "The correct answer is A", 0),
    (("one", "two", "three"), "one time", 0),
    (("one", "two", "three"), "two times", 1),
    (("one", "two", "three"), "It is one", 0),
    (("one", "two", "three"), "There is just one person.", 0),
    (("one", "two", "three"), "the second one", None),
    (("one", "two", "three"), "One of them is red, and there are three.", 2),
    (("one", "two", "three"), "Option one", 0),
    (("1", "2", "3"), "Number of dogs: 2", 1),
    (("1", "2", "3"), "1 dog", 0),
    (("1", "2", "3"), "a single dog", None),
    (("one", "two", "three"), "Someone walks", None),
    (("once", "twice"), "Just once.", 0),
    (("once", "twice"), "Only twice", 1),
    (("once", "twice"), "once or twice", None),
    (("once", "twice"), "At once he left", None),
    (("one time", "two times", "three times"), "Three", 2),
    (("he", "she"), "She does.", None),
    (("open", "closed"), "The door is open.", 0),
    (("open", "closed"), "The door is closed.", 1),
    (("open", "closed"), "The door is not open.", None),
    (("the man", "the woman"), "The man, not the woman.", 0),
    (("the man", "the woman"), "It was the woman.", 1),
    (("first", "second"), "The first.", 0),
    (("first", "second"), "The second option", 1),
    (("second", "first"), "The first option", None),
    (("before", "after"), "It happens before.", 0),
    (("before", "after"), "It happens after.", 1),
]


def lines(block):
    return [line.strip().replace("\\n", "\n").replace("\\r", "\r") for line in block.strip().splitlines()]


def cases():
    """Every reply with its options and the option it chooses."""
    for letter, block in READ.items():
        yield from ((ANIMALS, reply, ord(letter) - ord("A")) for reply in lines(block))
    yield from ((ANIMALS, reply, None) for reply in lines(NOT_READ))
    yield from OTHER


def test_every_reply_is_read_as_it_is_meant():
    wrong = [(options, reply, right, choose(reply, options)) for options, reply, right in cases()]
    wrong = [case for case in wrong if case[3].index != case[2]]
    assert not wrong, "\n".join(
        f"{reply!r} of {options}: {right}, read {read}" for options, reply, right, read in wrong
    )


SIGNS = {
    "bold": lambda text: re.sub(r"(?<![A-Za-z'])([A-D])(?![A-Za-z'])", r"**\1**", text),
    "spaces": lambda text: f"\n  {text}  \n",
    "windows lines": lambda text: text.replace("\n", "\r\n"),
    "curly quotes": lambda text: text.replace("'", "\u2019"),
    "no full stop": lambda text: text.removesuffix("."),
    "exclamation": lambda text: re.sub(r"\.$", "!", text),
}


@pytest.mark.parametrize("first", range(2))
def test_signs_change_no_reading(first):
    """Each reply with one kind of change, and with another."""
    wrong = []
    changes = itertools.cycle(list(SIGNS.values())[first::2])
    for (options, reply, right), change in zip(cases(), changes, strict=False):
        if options == ANIMALS and choose(change(reply), options).index != right:
            wrong.append((change(reply), right))
    assert not wrong, "\n".join(map(str, wrong))


def rotated(text):
    """The letters of a reply, each replaced by the next."""
    return re.sub(r"(?<![A-Za-z'])([A-D])(?![A-Za-z'])", lambda m: "ABCD"[("ABCD".index(m[1]) + 1) % 4], text)


def test_every_letter_is_read_like_the_next():
    wrong = []
    for options, reply, right in cases():
        skipped = re.search(r"dog|cat|bird|horse|option|choice|\bone\b|选项|^A |\b[a-d]\b|\n", reply, re.IGNORECASE)
        if options == ANIMALS and rotated(reply) != reply and not skipped:
            expected = None if right is None else (right + 1) % 4
            if choose(rotated(reply), options).index != expected:
                wrong.append((reply, rotated(reply), expected))
    assert not wrong, "\n".join(map(str, wrong))


OPPOSITES = [
    ("up", "down"),
    ("left", "right"),
    ("in", "out"),
    ("on", "off"),
    ("yes", "no"),
    ("true", "false"),
    ("correct", "incorrect"),
    ("one", "two"),
    ("once", "twice"),
    ("forward", "backward"),
    ("he", "she"),
    ("open", "closed"),
    ("before", "after"),
    ("more", "less"),
    ("inside", "outside"),
    ("on", "under"),
    ("above", "below"),
]
SENTENCES = (
    "{x}", "{x}.", "{x}!", "The answer is {x}.", "Answer: {x}", "I think {x}.", "I'd say {x}", "So, {x}.", "It is {x}.",
    "It's {x}.", "It moves {x}.", "It moves {x} the hill.", "The ball goes {x}.", "It is going {x}.", "He looks {x}.",
    "It moves to the {x}.", "It is on the {x}.", "He turns {x}.", "The light is {x}.", "The camera zooms {x}.",
    "The statement is {x}.", "That is {x}.", "This is not {x}.", "It is not {x}.", "It does not move {x}.",
    "He claps {x} times.", "He claps {x}.", "There are {x}.", "There are {x} dogs.", "The {x} on the side claps.",
    "Not {x}.", "{x}, not {y}.", "{x} rather than {y}.", "{x} and then {y}.", "It moves {x} and then {y}.", "{x}. {y}.",
    "{x} or {y}.", "Is it {x}?", "I thought {x}, but it is {y}.", "At first glance {x}, but actually {y}.",
    "If it is {x}, he leaves.", "He picks {x} the cup.", "He sits {x}.", "Maybe {x}.", "{x}, because he moves.",
    "It is {x} the table.", "The cup is {x} it.", "It was {x} all along.", "Everything {x} here.", "The {x} answer.",
    "Final answer: {x}", "Neither {x} nor {y}.",
)  # fmt: skip


@pytest.mark.parametrize("pair", OPPOSITES)
def test_what_reads_a_word_reads_its_opposite(pair):
    options = tuple(word.capitalize() for word in pair)
    sentences = [sentence for sentence in SENTENCES if not re.search(rf"\b(?:{'|'.join(pair)})\b", sentence)]
    for sentence, order in itertools.product(sentences, (options, options[::-1])):
        first = choose(sentence.format(x=pair[0], y=pair[1]), order)
        second = choose(sentence.format(x=pair[1], y=pair[0]), order)
        swapped = None if first.index is None else 1 - first.index
        assert (second.index, second.how) == (swapped, first.how), sentence


ACTS = ("running", "walking", "swimming", "dancing")
FURTHER = {
    "Answer: A\nThe dog is seen at 0:10.": (ANIMALS, 0),
    "A\nThe dog is seen.": (ANIMALS, 0),
    "Final answer: A\nExplanation: B is never shown.": (ANIMALS, 0),
    "Final Answer: A\nFinal Answer: B": (ANIMALS, None),
    "A: No dogs are seen.\nB: Yes a dog\nAnswer: A": (ANIMALS, 0),
    "My answer is B. Oops, I meant C.": (ANIMALS, 2),
    "A - or rather, B.": (ANIMALS, 1),
    "It is not true that the answer is B.": (ANIMALS, None),
    "I disagree that the answer is B.": (ANIMALS, None),
    "It would be premature to pick B.": (ANIMALS, None),
    "He is now swimming.": (ACTS, 2),
    "Note that he is swimming.": (ACTS, 2),
    "He was running; now he is swimming.": (ACTS, None),
    "Previously dancing, she is now swimming.": (ACTS, None),
    "It goes up first, and finally down.": (UP_DOWN, None),
    "It moves up initially and down later.": (UP_DOWN, None),
    "It goes up in the beginning but down at the end.": (UP_DOWN, None),
    "First it waits, then it moves up, not down.": (UP_DOWN, 0),
}


@pytest.mark.parametrize("reply", FURTHER)
def test_replies_of_an_attacker(reply):
    options, expected = FURTHER[reply]
    assert choose(reply, options).index == expected
